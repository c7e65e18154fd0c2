import 'reflect-metadata'
import { Controller, Get, Module, Query } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'

@Controller()
class AppController {
  @Get()
  hello(@Query('name') name: string): string {
    return `nestjs one for ${name}`
  }
}

@Module({ controllers: [AppController] })
class AppModule {}

NestFactory.create(AppModule).then((app) => app.listen(process.env.PORT ?? 3000))
